#define A(x) x x x x x x x x x x
#define B(x) A(A(x))
#define C(x) B(B(x))
int main(void)
{
    C(C(+1;))
    return 0;
}
