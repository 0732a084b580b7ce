/* poll() and select() take 64 bytes or more of the kernel's for each descriptor, on nobody's account
 * and for as long as they wait; the same descriptor may be named as often as there could be others. */
#include "hostile.h"

static struct pollfd all[4096];
static nfds_t count = 4096;

static void *wait_long(void *argument)
{
    (void)argument;
    while (poll(all, count, 3600000) < 0 && errno == EINVAL && count > 16)
        count /= 2;
    return NULL;
}

int main(void)
{
    pthread_attr_t small;
    pthread_t thread;
    int ends[2];
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    count = files.rlim_cur < 4096 ? files.rlim_cur : 4096;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        return 1;
    for (nfds_t i = 0; i < count; i++)
        all[i] = (struct pollfd){.fd = ends[i % 2], .events = POLLIN};
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i < 600; i++)
        if (pthread_create(&thread, &small, wait_long, NULL) != 0)
            break;
    usleep(300000);
    HELD();
    return 0;
}
