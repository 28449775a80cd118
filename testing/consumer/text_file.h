#ifndef TEXT_FILE_H_
#define TEXT_FILE_H_

#include <fstream>
#include <iterator>
#include <string>

// A file, whole. Empty when it cannot be read.
inline std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

#endif  // TEXT_FILE_H_
