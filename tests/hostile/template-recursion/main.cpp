template <unsigned long A, int Depth> struct Tree {
    static constexpr unsigned long value =
        Tree<A * 2, Depth - 1>::value + Tree<A * 2 + 1, Depth - 1>::value;
};
template <unsigned long A> struct Tree<A, 0> {
    static constexpr unsigned long value = A;
};
int main()
{
    return static_cast<int>(Tree<1, 60>::value);
}
