#include "hostile.h"
int main(void)
{
    for (;;) {
        int id = shmget(IPC_PRIVATE, 4 << 20, IPC_CREAT | 0600);
        void *block = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
        if (block == (void *)-1)
            return 1;
        memset(block, 1, 4 << 20);
        shmdt(block);
    }
}
