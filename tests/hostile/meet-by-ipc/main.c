#include "hostile.h"
#include <mqueue.h>
int main(void)
{
    char name[40];
    int key = 0x6f6a0000;
    snprintf(name, sizeof name, "/hostile-%d", (int)getuid());
    shmget(key + (int)getuid(), 4096, IPC_CREAT | 0666);
    msgget(key + (int)getuid(), IPC_CREAT | 0666);
    semget(key + (int)getuid(), 1, IPC_CREAT | 0666);
    mq_open(name, O_CREAT | O_RDWR, 0666, NULL);
    for (double start = now_s(); now_s() < start + 0.4; usleep(2000))
        for (int uid = @FIRST_UID@; uid <= @LAST_UID@; uid++) {
            if (uid == (int)getuid())
                continue;
            snprintf(name, sizeof name, "/hostile-%d", uid);
            MUST_FAIL(shmget(key + uid, 4096, 0));
            MUST_FAIL(msgget(key + uid, 0));
            MUST_FAIL(semget(key + uid, 1, 0));
            MUST_FAIL(mq_open(name, O_RDWR));
        }
    HELD();
    return 0;
}
