/* A message of one byte is an object of 64; one of priority of its own also has a node in a tree. */
#include "hostile.h"
#include <mqueue.h>

int main(void)
{
    char path[32];
    double end = now_s() + 0.7;
    for (int i = 0; i < 300 && now_s() < end; i++) {
        struct mq_attr how = {.mq_maxmsg = 10, .mq_msgsize = 1};
        snprintf(path, sizeof path, "/q%d", i);
        mqd_t queue = mq_open(path, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &how);
        for (unsigned priority = 0; queue >= 0 && priority < 10; priority++)
            mq_send(queue, "x", 1, priority * 1000);
        int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        struct {
            long type;
            char text[1];
        } message = {1, "x"};
        if (id < 0)
            continue;
        for (int sent = 0; sent < 20000; sent++) {
            if (msgsnd(id, &message, sent % 2, IPC_NOWAIT) < 0)
                break;
            message.type++;
        }
    }
    linger();
    HELD();
    return 0;
}
