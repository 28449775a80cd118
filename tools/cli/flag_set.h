#ifndef KVM_TOOLS_CLI_FLAG_SET_H_
#define KVM_TOOLS_CLI_FLAG_SET_H_

// The flags of one command.
//
//   int64_t threads = 2;
//   FlagSet flags("logits", "--model=DIR --ids=IN.safetensors", "Writes the logits of token ids.");
//   flags.Int64("threads", &threads, 1, 1024, "threads to work with");
//   flags.ReadFromEnvironment("threads", "KVM_THREADS");
//   RETURN_IF_ERROR(flags.Parse(args));
//
// Values come as --name=value or --name value, those of bools as --name and --noname; "--" ends the flags. A variable's
// value before Parse is its default.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvm {

class FlagSet {
 public:
  // `synopsis` is what follows the command's name in its usage line; `description` is a paragraph, wrapped by hand.
  FlagSet(std::string command, std::string synopsis, std::string description);

  // Variables must live until Parse returns.
  void String(const std::string& name, std::string* value, const std::string& placeholder, const std::string& help);
  // A text, which may be empty, as no other value may (but see AllowEmpty).
  void Text(const std::string& name, std::string* value, const std::string& help);
  // May be given more than once.
  void Strings(const std::string& name, std::vector<std::string>* values, const std::string& placeholder,
               const std::string& help);
  // One of `choices`.
  void Choice(const std::string& name, std::string* value, const std::vector<std::string>& choices,
              const std::string& help);
  // Both ends of a range are allowed.
  void Int64(const std::string& name, int64_t* value, int64_t min, int64_t max, const std::string& help);
  // Of a Double, the ends of its range that are in it.
  enum class Ends { kBoth, kMin, kMax };
  void Double(const std::string& name, double* value, double min, double max, const std::string& help,
              Ends ends = Ends::kBoth);
  void Bool(const std::string& name, bool* value, const std::string& help);
  // Comma-separated.
  void Int64s(const std::string& name, std::vector<int64_t>* values, int64_t min, int64_t max, const std::string& help);
  // Lets a flag of Int64s have no number.
  void AllowEmpty(const std::string& name) { Find(name)->may_be_empty = true; }
  // Shows this as the default of a flag whose value follows from others'.
  void DefaultText(const std::string& name, const std::string& text) { Find(name)->default_text = text; }
  // Takes all arguments that are no flags. Without this call there may be none.
  void Positionals(std::vector<std::string>* values) { positionals_ = values; }

  // The environment variable that sets the flag when the command line does not.
  void ReadFromEnvironment(const std::string& name, const std::string& variable);

  // Sets the variables. UsageError, naming the flag, its value and what was expected; HelpRequest for --help.
  absl::Status Parse(absl::Span<const std::string> args);

  // Whether the command line or the environment set the flag.
  bool IsSet(absl::string_view name) const;

  // Whether the environment did.
  bool IsFromEnvironment(absl::string_view name) const;

  // Where the flag's value came from: "--threads" or "KVM_THREADS".
  std::string Source(absl::string_view name) const;

  // A UsageError that ends with where to find help.
  absl::Status Wrong(absl::string_view message) const;

  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string placeholder;  // empty for bools
    std::string help;
    std::string default_text;  // empty when there is nothing worth showing
    std::string variable;
    // Stores a value, or says what was expected instead.
    std::function<std::string(const std::string&)> set;
    bool may_be_empty = false;
    bool is_set = false;
    bool is_from_variable = false;
  };

  Flag& Add(const std::string& name, const std::string& placeholder, const std::string& help,
            std::function<std::string(const std::string&)> set);
  Flag* Find(absl::string_view name);
  absl::Status Set(Flag& flag, const std::string& value, const std::string& source);
  // Takes args[*i] and, where the value follows apart, moves on to it.
  absl::Status ParseFlag(absl::Span<const std::string> args, size_t* i);
  absl::Status UnknownFlag(absl::string_view name) const;

  std::string command_;
  std::string synopsis_;
  std::string description_;
  std::vector<Flag> flags_;
  std::vector<std::string>* positionals_ = nullptr;
};

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_FLAG_SET_H_
