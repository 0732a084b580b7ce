#include "hostile.h"
#include <sys/inotify.h>
static volatile sig_atomic_t noticed;
static void notice(int number)
{
    (void)number;
    noticed = 1;
}
int main(void)
{
    char bytes[100];
    int watch = inotify_init1(IN_NONBLOCK), place = open("/usr/share", O_RDONLY | O_DIRECTORY);
    inotify_add_watch(watch, "/usr/share", IN_ACCESS | IN_OPEN);
    signal(SIGIO, notice);
    if (fcntl(place, F_NOTIFY, DN_ACCESS | DN_MULTISHOT) == 0)
        ESCAPED("is told who reads /usr/share");
    if (read(watch, bytes, sizeof bytes) > 0)
        ESCAPED("was told who opens /usr/share");
    for (double start = now_s(); now_s() < start + 0.3; usleep(2000)) {
        int fd = open("/usr/share", O_RDONLY | O_DIRECTORY);
        struct dirent *entry;
        DIR *list = fdopendir(fd);
        while (list && (entry = readdir(list)))
            ;
        if (list)
            closedir(list);
    }
    if (noticed)
        ESCAPED("was told that somebody read /usr/share");
    HELD();
    return 0;
}
