#include "answers.txt"
