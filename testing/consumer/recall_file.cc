// recall_file FILE   prints what the queries in a safetensors file recall, a row a line.

#include <cstdint>
#include <cstdio>

#include "recall.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: recall_file FILE\n", stderr);
    return 2;
  }
  const auto recalled = Recall(argv[1]);
  if (!recalled.ok()) {
    std::fprintf(stderr, "%s\n", recalled.status().ToString().c_str());
    return 1;
  }
  const int64_t columns = recalled->shape()[1];
  for (int64_t i = 0; i < recalled->num_elements(); ++i) {
    std::printf("%g%c", static_cast<double>(recalled->floats()[static_cast<size_t>(i)]),
                (i + 1) % columns == 0 ? '\n' : ' ');
  }
  return 0;
}
