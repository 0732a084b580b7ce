/* Each segment is a file of the kernel's own file system, beside those that the box may hold. */
#include "hostile.h"

int main(void)
{
    double end = now_s() + 0.7;
    for (int i = 0; i < 10000 && now_s() < end; i++) {
        int id = shmget(IPC_PRIVATE, 1 << 30, IPC_CREAT | 010000 /* SHM_NORESERVE */ | 0600);
        if (id < 0)
            break;
        shmat(id, NULL, 0);
    }
    linger();
    HELD();
    return 0;
}
