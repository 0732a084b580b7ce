#include "hostile.h"
#include <mqueue.h>
int main(void)
{
    if (shmget(77, 4096, 0600) >= 0)
        ESCAPED("shared memory of the last run");
    if (semget(77, 1, 0600) >= 0)
        ESCAPED("semaphores of the last run");
    if (msgget(77, 0600) >= 0)
        ESCAPED("messages of the last run");
    if (mq_open("/left", O_RDWR) >= 0)
        ESCAPED("a POSIX message queue of the last run");
    shmget(77, 4096, IPC_CREAT | 0666);
    semget(77, 1, IPC_CREAT | 0666);
    msgget(77, IPC_CREAT | 0666);
    mq_open("/left", O_RDWR | O_CREAT, 0666, NULL);
    HELD();
    return 0;
}
