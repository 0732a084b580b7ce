constexpr unsigned long work(unsigned long n)
{
    return n < 2 ? 1 : work(n - 1) + work(n - 2);
}
template <unsigned long N> struct Constant {
    static constexpr unsigned long value = N + Constant<N - 1>::value;
};
template <> struct Constant<0> {
    static constexpr unsigned long value = work(32);
};
static_assert(work(31) != work(33) + work(34) + work(35), "");
int main()
{
    return Constant<800>::value != 0;
}
