/* Arguments are 64 bits wide; of many the kernel takes the lower 32, whatever is above. A filter that
 * compares all of them sees another number than the kernel. */
#include "hostile.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

int main(void)
{
    static struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    struct flock lock = {.l_type = F_WRLCK, .l_len = 1};
    uint64_t hint = 2;
    int pair[2], file = open("/tmp/file", O_CREAT | O_RDWR, 0600);
    if (file < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return 1;
    for (unsigned long high = 1UL << 32; high; high <<= 15) {
        MUST_FAIL(syscall(SYS_prctl, high + PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
        MUST_FAIL(syscall(SYS_setsockopt, pair[0], SOL_SOCKET, high + SO_ATTACH_FILTER, &program,
                          sizeof program));
        MUST_FAIL(syscall(SYS_fcntl, file, high + 1036 /* F_SET_RW_HINT */, &hint));
        MUST_FAIL(syscall(SYS_fcntl, file, high + F_SETLEASE, F_RDLCK));
        MUST_FAIL(syscall(SYS_socket, high + AF_INET, SOCK_DGRAM, 0));
        MUST_FAIL(syscall(SYS_personality, high + 0x0040000));
        /* would keep others off this core: another error where the kernel knows it */
        if (syscall(SYS_prctl, high + 62 /* PR_SCHED_CORE */, 0, 0, 0, 0) == -1 && errno != EPERM)
            ESCAPED("PR_SCHED_CORE reached the kernel");
        if (syscall(SYS_ioctl, 1, high + 0x5412 /* TIOCSTI */, "x") == -1 && errno != EPERM)
            ESCAPED("TIOCSTI reached the kernel");
        if (syscall(SYS_ioctl, pair[0], high + 0x8940 /* SIOCGIFBR */, 0) == -1 && errno != EPERM)
            ESCAPED("SIOCGIFBR reached the kernel");
        /* a good answer for nothing at all: the kernel was not asked */
        if (syscall(SYS_fadvise64, -1, 0, 0, high + POSIX_FADV_DONTNEED) != 0)
            ESCAPED("may drop files");
        if (syscall(SYS_msync, 1, 1, high + MS_SYNC) != 0)
            ESCAPED("may flush files");
        if (syscall(SYS_fcntl, -1, high + F_SETLK, &lock) != 0)
            ESCAPED("may lock parts of files");
    }
    HELD();
    return 0;
}
