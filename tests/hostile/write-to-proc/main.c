/* Who it was logged in as (loginuid), how soon it is killed for memory, its share of the processor
 * (autogroup), the table of users: nothing of that is a program's to say. */
#include "hostile.h"

int main(void)
{
    static const char *const names[] = {"loginuid", "oom_score_adj", "oom_adj", "autogroup",
                                        "coredump_filter", "timerslack_ns", "clear_refs", "uid_map",
                                        "gid_map", "setgroups", "projid_map", "attr/current",
                                        "attr/exec", "make-it-fail", "fail-nth", "sched", "comm",
                                        "timens_offsets", "ksm_stat", "latency"};
    static const char *const tops[] = {"/proc/self", "/proc/thread-self", "/proc/1"};
    char path[64], text[32];
    int fd = open("/proc/self/loginuid", O_RDONLY);
    if (fd >= 0 && read(fd, text, sizeof text) > 0 && strncmp(text, "4294967295", 10) != 0)
        ESCAPED("loginuid is %.10s", text);
    for (int top = 0; top < 3; top++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(path, sizeof path, "%s/%s", tops[top], names[i]);
            fd = open(path, O_WRONLY);
            if (fd >= 0)
                ESCAPED("%s can be written", path);
            close(fd);
        }
    HELD();
    return 0;
}
