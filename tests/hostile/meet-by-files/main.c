#include "hostile.h"
int main(void)
{
    const char *places[] = {"/tmp", "/box", "/dev/shm", "/var/tmp", "/run", "/dev/mqueue"};
    char path[100];
    for (int i = 0; i < 6; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(path, sizeof path, "%s/file-%d", places[i], (int)getuid());
        close(open(path, O_CREAT | O_RDWR, 0666));
        snprintf(path, sizeof path, "%s/fifo-%d", places[i], (int)getuid());
        mkfifo(path, 0666);
        snprintf(address.sun_path, sizeof address.sun_path, "%s/socket-%d", places[i], (int)getuid());
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(fd, (void *)&address, sizeof address) == 0)
            listen(fd, 5);
    }
    for (double start = now_s(); now_s() < start + 0.4; usleep(2000))
        for (int i = 0; i < 6; i++)
            for (int uid = @FIRST_UID@; uid <= @LAST_UID@; uid++) {
                const char *kinds[] = {"file", "fifo", "socket"};
                for (int kind = 0; kind < 3 && uid != (int)getuid(); kind++) {
                    snprintf(path, sizeof path, "%s/%s-%d", places[i], kinds[kind], uid);
                    if (access(path, F_OK) == 0)
                        ESCAPED("found %s", path);
                }
            }
    HELD();
    return 0;
}
