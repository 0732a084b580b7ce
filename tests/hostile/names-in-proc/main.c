/* What a process is told about itself could name the slot, the number of the run, the task, the
 * judge's directories and the host's disks. */
#include "hostile.h"

/* In two words: this program is in /proc, too. */
static const char *const words[][2] = {{"oj", "-box."},  {"lower", "dir"}, {"upper", "dir"},
                                       {"oj-", "hostile"}, {"names-in", "-proc"}, {"/dev/", "vd"},
                                       {"/dev/", "sd"},  {"blo", "bs/"},   {"system", ".slice"},
                                       {"exec", "utor"}};

static void search(const char *path, const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char word[40];
        snprintf(word, sizeof word, "%s%s", words[i][0], words[i][1]);
        const char *at = memmem(text, length, word, strlen(word));
        if (at)
            ESCAPED("%s tells %.60s", path, at);
    }
}

int main(void)
{
    static char text[1 << 18];
    static const char *const files[] = {
        "cgroup", "mountinfo", "mounts", "mountstats", "environ", "status", "stat", "limits",
        "cmdline", "comm", "maps", "smaps", "numa_maps", "sched", "wchan", "syscall", "stack",
        "attr/current", "loginuid", "sessionid", "autogroup", "cpuset", "io", "latency",
        "schedstat", "personality", "timers", "uid_map", "cpu_resctrl_groups", "fdinfo/0",
        "fdinfo/1", "fdinfo/2"};
    static const char *const links[] = {"fd/0", "fd/1", "fd/2", "exe", "cwd", "root"};
    static const char *const tops[] = {"/proc/self", "/proc/thread-self"};
    char path[64];
    for (int top = 0; top < 2; top++) {
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(path, sizeof path, "%s/%s", tops[top], files[i]);
            int fd = open(path, O_RDONLY);
            size_t length = 0;
            ssize_t got;
            while (fd >= 0 && length < sizeof text - 1 &&
                   (got = read(fd, text + length, sizeof text - 1 - length)) > 0)
                length += (size_t)got;
            close(fd);
            text[length] = 0;
            search(path, text, length);
            /* with or without controllers of v1 in front */
            for (char *line = text; strcmp(files[i], "cgroup") == 0 && *line;) {
                char *end = strchrnul(line, '\n'), *colon = memrchr(line, ':', (size_t)(end - line));
                if (colon && end - colon != 2)
                    ESCAPED("a cgroup with a name: %.*s", (int)(end - line), line);
                line = *end ? end + 1 : end;
            }
        }
        for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
            snprintf(path, sizeof path, "%s/%s", tops[top], links[i]);
            ssize_t got = readlink(path, text, sizeof text);
            if (got > 0)
                search(path, text, (size_t)got);
        }
    }
    HELD();
    return 0;
}
