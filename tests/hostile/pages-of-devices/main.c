/* Splicing from /dev/zero makes pages for the pipe that the kernel counts for nobody and in none of
 * /proc/meminfo; from there they go into a socket by reference, in as many as there are descriptors. */
#include "hostile.h"
#include <sys/sendfile.h>

static void work(int number)
{
    static const char *const names[] = {"/dev/zero", "/dev/urandom"};
    int size = 1 << 24;
    double end = now_s() + 0.5;
    int zero = open(names[number / 100], O_RDONLY);
    for (int i = 0; i < 1000 && now_s() < end; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
            break;
        for (int j = 0; j < 2; j++) {
            setsockopt(pair[j], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
            while (now_s() < end && sendfile(pair[j], zero, NULL, 1 << 20) > 0)
                ;
        }
    }
}

int main(void)
{
    in_children(4, work);
    HELD();
    return 0;
}
