#include "hostile.h"
extern char **environ;
int main(void)
{
    for (char **at = environ; *at; at++)
        if (strncmp(*at, "PATH=", 5) && strncmp(*at, "HOME=/tmp", 9) && strncmp(*at, "LANG=", 5) &&
            strncmp(*at, "TMPDIR=/tmp", 11))
            ESCAPED("the environment holds %s", *at);
    for (int fd = 3; fd < 5000; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            ESCAPED("descriptor %d is open", fd);
    struct stat info;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &info) == 0 && (S_ISDIR(info.st_mode) || S_ISSOCK(info.st_mode)))
            ESCAPED("descriptor %d is more than a stream", fd);
    search_file("/proc/self/environ");
    if (getppid() != 1)
        ESCAPED("the parent is %d", getppid());
    if (getsid(0) != getpid() || getpgid(0) != getpid())
        ESCAPED("the session is the judge's");
    HELD();
    return 0;
}
