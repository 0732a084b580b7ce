/* Two runs at once and one after the other have the same input: if they had the same open file, each
 * could tell the others something by the place it reads at, its flags and its owner. */
#include "hostile.h"

int main(void)
{
    char byte;
    if (lseek(0, 0, SEEK_CUR) != 0 || fcntl(0, F_GETOWN) != 0 || fcntl(0, F_GETSIG) != 0 ||
        (fcntl(0, F_GETFL) & (O_NONBLOCK | O_APPEND | O_ASYNC | O_NOATIME)))
        ESCAPED("the input is not as new");
    int mine = 1 + getpid() % 5 + (int)(now_s() * 1000) % 13;
    fcntl(0, F_SETOWN, getpid());
    fcntl(0, F_SETSIG, SIGUSR2);
    fcntl(0, F_SETFL, O_NONBLOCK | O_APPEND);
    for (double end = now_s() + 0.3; now_s() < end;) {
        lseek(0, mine, SEEK_SET);
        usleep(1000);
        if (lseek(0, 0, SEEK_CUR) != mine)
            ESCAPED("somebody else moves in the input");
        (void)!read(0, &byte, 1);
    }
    HELD();
    return 0;
}
