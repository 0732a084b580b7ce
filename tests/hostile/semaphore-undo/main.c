/* Each process that changes one semaphore of a set with SEM_UNDO gets a table for the whole set. */
#include "hostile.h"

static int sets[64], count;

static void work(int number)
{
    struct sembuf change = {.sem_num = (unsigned short)number, .sem_op = 1, .sem_flg = SEM_UNDO};
    for (int i = 0; i < count; i++)
        semop(sets[i], &change, 1);
}

int main(void)
{
    while (count < 8 && (sets[count] = semget(IPC_PRIVATE, 32000, IPC_CREAT | 0600)) >= 0)
        count++;
    in_children(30, work);
    HELD();
    return 0;
}
