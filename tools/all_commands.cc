#include "tools/all_commands.h"

#include "tools/bench_command.h"
#include "tools/build_command.h"
#include "tools/convert_command.h"
#include "tools/demo/demo_command.h"
#include "tools/generate_command.h"
#include "tools/inspect_command.h"
#include "tools/logits_command.h"
#include "tools/session/session_command.h"
#include "tools/tokenize_command.h"

namespace kvm {

std::vector<Command> AllCommands() {
  return {DemoCommand(),       BuildCommand(),  InspectCommand(),  ConvertCommand(), TokenizeCommand(),
          DetokenizeCommand(), LogitsCommand(), GenerateCommand(), SessionCommand(), BenchCommand()};
}

}  // namespace kvm
