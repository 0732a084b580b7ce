#include "hostile.h"
int main(void)
{
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET};
    for (int family = 0; family < 64; family++)
        for (size_t type = 0; type < sizeof types / sizeof *types; type++)
            for (int protocol = 0; protocol < 300; protocol++) {
                int fd = socket(family, types[type], protocol);
                if (fd < 0)
                    continue;
                close(fd);
                if (family != AF_UNIX)
                    ESCAPED("family %d type %d protocol %d", family, types[type], protocol);
            }
    HELD();
    return 0;
}
