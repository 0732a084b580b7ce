#include "hostile.h"
static socklen_t name(struct sockaddr_un *address, int uid)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = sprintf(address->sun_path + 1, "oj-hostile-%d", uid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
int main(void)
{
    struct sockaddr_un address;
    int own = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = name(&address, (int)getuid());
    if (bind(own, (void *)&address, length) < 0 || listen(own, 5) < 0)
        ESCAPED("the name is taken");
    for (double start = now_s(); now_s() < start + 0.4; usleep(2000))
        for (int uid = @FIRST_UID@; uid <= @LAST_UID@; uid++) {
            if (uid == (int)getuid())
                continue;
            int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
            length = name(&address, uid);
            if (connect(fd, (void *)&address, length) == 0)
                ESCAPED("met the run of user %d", uid);
            close(fd);
        }
    HELD();
    return 0;
}
