#include "hostile.h"
int main(void)
{
    static struct {
        long type;
        char text[8000];
    } message = {.type = 1};
    for (int i = 0; i < 20000; i++) {
        int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        if (id < 0)
            return 1;
        while (msgsnd(id, &message, sizeof message.text, IPC_NOWAIT) == 0)
            ;
    }
    HELD();
    return 0;
}
