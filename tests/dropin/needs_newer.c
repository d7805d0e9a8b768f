/* A program that does not start without the libibverbs that it was built with. */
#include <stdio.h>

int ibv_of_a_later_day(void);

int main(void) {
  printf("%d\n", ibv_of_a_later_day());
  return 0;
}
