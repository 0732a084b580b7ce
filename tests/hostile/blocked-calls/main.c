/* Lists of buffers (16 KB), of futexes (8 KB) and of operations on semaphores, and paths (4 KB) are
 * copied first, on nobody's account, and freed when the call returns, which it does not. */
#include "hostile.h"
#include <sys/uio.h>

static struct iovec vector[1024];
static int ends[2], set;

struct waiter {
    uint64_t value, address;
    uint32_t flags, reserved;
};

static void *wait_somewhere(void *argument)
{
    static uint32_t words[128];
    static struct waiter waiters[128];
    static struct sembuf operations[500];
    static char path[4096];
    switch ((intptr_t)argument % 4) {
    case 0:
    case 1:
        (void)!readv(ends[0], vector, 1024);
        break;
    case 2:
        for (int i = 0; i < 128; i++)
            waiters[i] = (struct waiter){0, (uintptr_t)&words[i], 2, 0};
        syscall(449 /* futex_waitv */, waiters, 128, 0, NULL, 0);
        break;
    default:
        for (int i = 0; i < 500; i++)
            operations[i] = (struct sembuf){(unsigned short)i, -1, 0};
        if ((intptr_t)argument % 8 == 7) {
            memset(path, '/', sizeof path - 10);
            strcpy(path + sizeof path - 10, "tmp/f");
            (void)!open(path, O_RDONLY);
        } else {
            semop(set, operations, 500);
        }
    }
    return NULL;
}

int main(void)
{
    static char byte;
    pthread_attr_t small;
    pthread_t thread;
    for (int i = 0; i < 1024; i++)
        vector[i] = (struct iovec){&byte, 1};
    if (pipe(ends) < 0 || (set = semget(IPC_PRIVATE, 500, IPC_CREAT | 0600)) < 0)
        return 1;
    mkfifo("/tmp/f", 0600);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (intptr_t i = 0; i < 600; i++)
        if (pthread_create(&thread, &small, wait_somewhere, (void *)i) != 0)
            break;
    usleep(300000);
    HELD();
    return 0;
}
