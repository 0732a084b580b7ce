#include "hostile.h"
int main(void)
{
    struct timespec time = {0, 0};
    struct timeval old = {0, 0};
    char buffer[4096] = {0};
    MUST_FAIL(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
    MUST_FAIL(syscall(SYS_kexec_load, 0, 0, NULL, 0));
    MUST_FAIL(syscall(SYS_init_module, buffer, sizeof buffer, ""));
    MUST_FAIL(syscall(SYS_finit_module, 0, "", 0));
    MUST_FAIL(syscall(SYS_delete_module, "ext4", 0));
    MUST_FAIL(clock_settime(CLOCK_REALTIME, &time));
    MUST_FAIL(syscall(SYS_settimeofday, &old, NULL));
    MUST_FAIL(syscall(SYS_swapon, "/tmp/swap", 0));
    MUST_FAIL(syscall(SYS_swapoff, "/tmp/swap"));
    MUST_FAIL(syscall(SYS_acct, "/tmp/account"));
    MUST_FAIL(syscall(SYS_syslog, 3, buffer, sizeof buffer));
    MUST_FAIL(sethostname("hostile", 7));
    MUST_FAIL(setdomainname("hostile", 7));
    MUST_FAIL(syscall(SYS_quotactl, 0, "", 0, NULL));
#ifdef __x86_64__
    MUST_FAIL(syscall(SYS_iopl, 3));
    MUST_FAIL(syscall(SYS_ioperm, 0, 1, 1));
    MUST_FAIL(syscall(SYS_modify_ldt, 0, buffer, sizeof buffer));
#endif
    MUST_FAIL(syscall(SYS_vhangup));
    HELD();
    return 0;
}
