// A libcuda.so.1 of old, which has less than is needed.
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int* version) {
  *version = 9000;
  return 0;
}
