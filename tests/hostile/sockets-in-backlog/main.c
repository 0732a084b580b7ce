/* A connection that nobody accepts is a whole socket without a descriptor, with what was written into
 * it: thousands wait at one listener. */
#include "hostile.h"

int main(void)
{
    static char bytes[100000];
    double end = now_s() + 0.7;
    for (int i = 0; i < 200 && now_s() < end; i++) {
        int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        socklen_t length = sizeof name;
        if (listener < 0 || bind(listener, (struct sockaddr *)&name, sizeof name.sun_family) < 0 ||
            listen(listener, 4096) < 0 ||
            getsockname(listener, (struct sockaddr *)&name, &length) < 0)
            break;
        for (int j = 0; j < 4096 && now_s() < end; j++) {
            int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
            if (connect(caller, (struct sockaddr *)&name, length) < 0) {
                close(caller);
                break;
            }
            send(caller, bytes, j % 4 ? 1 : sizeof bytes, MSG_NOSIGNAL);
            close(caller);
        }
    }
    linger();
    HELD();
    return 0;
}
