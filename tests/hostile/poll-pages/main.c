/* poll() waits in pages that count for nobody and are named nowhere; a FIFO that is open for both reading
 * and writing takes two places. What is counted is used up beside it. */
#include "hostile.h"

static struct pollfd all[4096];
static nfds_t count = 4096;

static void *wait_long(void *argument)
{
    (void)argument;
    poll(all, count, 3600000);
    pause();
    return NULL;
}

int main(void)
{
    static char bytes[1 << 20];
    pthread_attr_t small;
    pthread_t thread;
    int ends[2];
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    count = files.rlim_cur < 4096 ? files.rlim_cur : 4096;
    mkfifo("/tmp/fifo", 0600);
    int fifo = open("/tmp/fifo", O_RDWR);
    for (nfds_t i = 0; i < count; i++)
        all[i] = (struct pollfd){.fd = fifo, .events = POLLPRI};
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i < 980; i++)
        if (pthread_create(&thread, &small, wait_long, NULL) != 0)
            break;
    usleep(200000);
    for (int i = 0; i < 27 && pipe2(ends, O_NONBLOCK) == 0; i++) {
        int size = fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        if (size > 0 && write(ends[1], bytes, (size_t)size) < 0)
            break;
    }
    usleep(100000);
    HELD();
    return 0;
}
