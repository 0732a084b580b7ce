char array[2000000000] = {1};
char more[2000000000] = {1};
int main(void)
{
    return array[1] + more[1];
}
