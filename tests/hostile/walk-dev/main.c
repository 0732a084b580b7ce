#include "hostile.h"
static long look(const char *path)
{
    const char *fine[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
                          "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (strcmp(path, fine[i]) == 0)
            return 0;
    ESCAPED("there is %s", path);
    return 0;
}
int main(void)
{
    const char *names[] = {"mem", "kmem", "port", "kmsg", "tty", "tty0", "console", "ptmx", "pts/0",
                           "sda", "vda", "loop0", "loop-control", "fuse", "kvm", "net/tun",
                           "userfaultfd", "vsock", "vhost-net", "rtc", "hpet", "watchdog", "mapper",
                           "dri", "snd", "uinput", "input/event0", "cpu/0/msr", "mqueue", "hugepages"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "/dev/%s", names[i]);
        if (open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY) >= 0)
            ESCAPED("%s can be opened", path);
    }
    walk("/dev", 3, look);
    MUST_FAIL(chmod("/dev/null", 0));
    MUST_FAIL(unlink("/dev/null"));
    HELD();
    return 0;
}
