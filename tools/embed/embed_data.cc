// Writes NAME.h and NAME.cc with the contents of files:
//
//   embed_data OUTPUT_FOLDER PACKAGE NAME FUNCTION=FILE...
//
// Runs at build time alone and needs nothing but the standard library.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// Bytes of a file in one line of source.
constexpr size_t kLine = 80;

struct Embedded {
  std::string function;
  std::string contents;
};

std::string Literal(const std::string& bytes, size_t begin, size_t end) {
  std::string text = "\"";
  for (size_t i = begin; i < end; ++i) {
    const unsigned char byte = static_cast<unsigned char>(bytes[i]);
    if (byte == '"' || byte == '\\' || byte == '?') {  // "??x" is a trigraph to some compilers
      text += '\\';
      text += static_cast<char>(byte);
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escape[5];
      std::snprintf(escape, sizeof(escape), "\\%03o", byte);
      text += escape;
    } else {
      text += static_cast<char>(byte);
    }
  }
  return text + "\"";
}

std::string Guard(std::string path) {
  for (char& c : path) c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::toupper(c)) : '_';
  return "KVM_" + path + "_H_";
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) std::cerr << "embed_data: cannot write " << path << "\n";
  return static_cast<bool>(out);
}

std::string Header(const std::string& guard, const std::vector<Embedded>& files) {
  std::string text = "#ifndef " + guard + "\n#define " + guard + "\n\n#include \"absl/strings/string_view.h\"\n\n";
  text += "namespace kvm {\n\n";
  for (const Embedded& file : files) text += "absl::string_view " + file.function + "();\n";
  return text + "\n}  // namespace kvm\n\n#endif  // " + guard + "\n";
}

std::string Source(const std::string& header, const std::vector<Embedded>& files) {
  std::string text = "#include \"" + header + "\"\n\nnamespace kvm {\n";
  for (const Embedded& file : files) {
    const size_t size = file.contents.size();
    text += "\nabsl::string_view " + file.function + "() {\n  static constexpr char kBytes[] =\n";
    for (size_t begin = 0; begin < size; begin += kLine) {
      text += "      " + Literal(file.contents, begin, std::min(begin + kLine, size)) + "\n";
    }
    text += "      \"\";\n  return absl::string_view(kBytes, sizeof(kBytes) - 1);\n}\n";
  }
  return text + "\n}  // namespace kvm\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: embed_data OUTPUT_FOLDER PACKAGE NAME FUNCTION=FILE...\n";
    return 2;
  }
  const std::string folder = argv[1], package = argv[2], name = argv[3];
  std::vector<Embedded> files;
  for (int i = 4; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      std::cerr << "embed_data: expected FUNCTION=FILE, not " << argument << "\n";
      return 2;
    }
    std::ifstream in(argument.substr(equals + 1), std::ios::binary);
    if (!in) {
      std::cerr << "embed_data: cannot read " << argument.substr(equals + 1) << "\n";
      return 1;
    }
    files.push_back({argument.substr(0, equals),
                     std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>())});
  }
  const std::string header = package + "/" + name + ".h";
  const bool written = Write(folder + "/" + name + ".h", Header(Guard(package + "/" + name), files)) &&
                       Write(folder + "/" + name + ".cc", Source(header, files));
  return written ? 0 : 1;
}
