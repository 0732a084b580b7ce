#include "hostile.h"
int main(void)
{
    for (int ring = -8; ring < 0; ring++) {
        MUST_FAIL(syscall(SYS_keyctl, 0, ring, 1));
        MUST_FAIL(syscall(SYS_add_key, "user", "left", "data", 4, ring));
        MUST_FAIL(syscall(SYS_request_key, "user", "left", NULL, ring));
        MUST_FAIL(syscall(SYS_keyctl, 11, ring, NULL, 0));
    }
    MUST_FAIL(syscall(SYS_keyctl, 1, "session"));
    MUST_FAIL(open("/proc/keys", O_RDONLY));
    HELD();
    return 0;
}
