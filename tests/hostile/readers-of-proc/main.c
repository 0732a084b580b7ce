/* What is read from /proc is made in a buffer that stays until the file is closed; each file there
 * is made anew for each process. */
#include "hostile.h"

static void work(int number)
{
    static const char *const names[] = {"maps",   "smaps",  "mountinfo", "mountstats", "stat",
                                        "status", "limits", "environ",   "numa_maps",  "sched",
                                        "mounts", "cgroup", "timers",    "auxv",       "pagemap"};
    char path[64], byte[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(path, sizeof path, "/proc/self/%s", names[(i + number) % 15]);
        int fd = open(path, O_RDONLY);
        if (fd < 0 && errno == EMFILE)
            break;
        (void)!read(fd, byte, sizeof byte);
    }
}

int main(void)
{
    in_children(20, work);
    HELD();
    return 0;
}
