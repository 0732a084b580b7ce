#include "hostile.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
int main(void)
{
    struct sock_filter log[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_LOG}};
    struct sock_fprog program = {1, log};
    MUST_FAIL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
    MUST_FAIL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &program));
    MUST_FAIL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    int unix_socket = socket(AF_UNIX, SOCK_STREAM, 0);
    static const int options[] = {SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        MUST_FAIL(setsockopt(unix_socket, SOL_SOCKET, options[i], &program, sizeof program));
    HELD();
    return 0;
}
