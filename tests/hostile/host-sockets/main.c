#include "hostile.h"
static void reach(const char *path, int abstract)
{
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path + abstract, path, sizeof address.sun_path - 2);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)abstract +
                                   strlen(path));
    for (int i = 0; i < 3; i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_NONBLOCK, 0);
        if (connect(fd, (void *)&address, length) == 0)
            ESCAPED("connected to %s", path);
        close(fd);
    }
}
int main(void)
{
    reach("oj-hostile-host", 1);
    reach("@SOCKET@", 0);
    reach("/run/systemd/journal/socket", 0);
    reach("/run/systemd/notify", 0);
    reach("/run/systemd/private", 0);
    reach("/run/dbus/system_bus_socket", 0);
    reach("/var/run/docker.sock", 0);
    reach("/dev/log", 0);
    HELD();
    return 0;
}
