#include "hostile.h"
int main(void)
{
    const char *writable[] = {
        "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register",
        "/proc/1/oom_score_adj", "/proc/1/mem", "/proc/self/setgroups", "/proc/kcore", "/proc/kmsg",
        "/proc/kallsyms", "/proc/config.gz", "/proc/keys", "/proc/sched_debug", "/proc/timer_list",
        "/proc/cmdline", "/proc/mounts", "/proc/net/tcp", "/proc/irq/0/smp_affinity",
        "/proc/@JUDGE_PID@/environ", "/proc/@BOX_PID@/environ", "/proc/1/environ", "/proc/1/maps",
        "/proc/1/root/etc/shadow", "/proc/1/cwd", "/proc/1/fd", "/proc/1/ns/mnt",
        "/proc/@JUDGE_PID@/root@SECRET_FILE@"};
    for (size_t i = 0; i < sizeof writable / sizeof *writable; i++) {
        /* One's own is one's own. */
        int own = strncmp(writable[i], "/proc/self", 10) == 0 ||
                  strcmp(writable[i], "/proc/mounts") == 0 || strncmp(writable[i], "/proc/net", 9) == 0;
        if (!own && open(writable[i], O_RDONLY | O_NONBLOCK) >= 0)
            ESCAPED("%s can be read", writable[i]);
        if (!own && open(writable[i], O_WRONLY | O_NONBLOCK) >= 0)
            ESCAPED("%s can be written", writable[i]);
    }
    walk("/proc", 5, search_file);
    /* Only what belongs to processes, and of those only our own. */
    struct dirent *entry;
    DIR *list = opendir("/proc");
    while (list && (entry = readdir(list)))
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && atoi(entry->d_name) != getpid())
            ESCAPED("/proc/%s is somebody else", entry->d_name);
    HELD();
    return 0;
}
