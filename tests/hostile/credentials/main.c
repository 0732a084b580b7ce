/* Becoming oneself again makes a new object, and each file that is opened keeps the one of its time. */
#include "hostile.h"

static void work(int number)
{
    (void)number;
    for (int i = 0; i < 5000; i++) {
        if (syscall(SYS_setresuid, getuid(), getuid(), getuid()) < 0 ||
            open("/dev/null", O_RDONLY | O_PATH) < 0)
            break;
    }
}

int main(void)
{
    in_children(30, work);
    HELD();
    return 0;
}
