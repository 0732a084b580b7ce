#include "hostile.h"
int main(void)
{
    for (int command = 0; command < 40; command++) {
        uint32_t attributes[32] = {1, 4, 4, 16};
        MUST_FAIL(syscall(SYS_bpf, command, attributes, sizeof attributes));
    }
    HELD();
    return 0;
}
