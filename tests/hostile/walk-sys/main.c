#include "hostile.h"
int main(void)
{
    const char *places[] = {"/sys", "/sys/fs/cgroup", "/sys/kernel", "/sys/kernel/debug",
                            "/sys/fs/bpf", "/run", "/run/systemd", "/boot", "/root", "/home", "/mnt",
                            "/media", "/srv", "/opt", "/.oj/shared", "/.oj/shared/tree", "/.oj/run",
                            "/.oj/run/upper", "/.oj/shared/layer", "/.oj/shared/data",
                            "/var/lib/oj", "/run/oj", "/etc/oj"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (open(places[i], O_RDONLY | O_DIRECTORY) >= 0 || chdir(places[i]) == 0)
            ESCAPED("%s can be entered", places[i]);
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char line[4096];
    while (file && fgets(line, sizeof line, file)) {
        const char *bad[] = {" - cgroup", " - sysfs", " - debugfs", " - bpf", " - devtmpfs",
                             " - devpts", " - securityfs", " - tracefs", " - fusectl"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            if (strstr(line, bad[i]))
                ESCAPED("a mount%s", bad[i]);
    }
    HELD();
    return 0;
}
