/* Lists of buffers and control data are copied into the kernel for as long as a call waits. */
#include "hostile.h"
#include <sys/uio.h>

static int ends[2];

static void *wait_long(void *argument)
{
    static struct iovec list[1024];
    static char byte[64], control[18000];
    for (int i = 0; i < 1024; i++)
        list[i] = (struct iovec){byte, 1};
    struct cmsghdr *head = (struct cmsghdr *)control;
    *head = (struct cmsghdr){.cmsg_len = sizeof control, .cmsg_level = 999};
    struct msghdr message = {
        .msg_iov = list, .msg_iovlen = 1024, .msg_control = control, .msg_controllen = sizeof control};
    if ((long)argument % 2)
        sendmsg(ends[0], &message, 0);
    else
        (void)!readv(ends[0], list, 1024);
    pause();
    return NULL;
}

int main(void)
{
    pthread_attr_t small;
    pthread_t thread;
    static char bytes[4096];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        return 1;
    while (send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (long i = 0; i < 980; i++)
        if (pthread_create(&thread, &small, wait_long, (void *)i) != 0)
            break;
    usleep(400000);
    HELD();
    return 0;
}
