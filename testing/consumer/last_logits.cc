#include "last_logits.h"

#include "kvm/base/status_macros.h"
#include "kvm/io/model_folder.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"
#include "kvm/state/sequence_state.h"

absl::StatusOr<std::vector<float>> LastLogits(const std::string& path, const std::vector<int32_t>& tokens) {
  ASSIGN_OR_RETURN(const kvm::ModelFolder folder, kvm::OpenModelFolder(path));
  ASSIGN_OR_RETURN(const auto model, kvm::LanguageModel::Create(folder.spec, *folder.weights, {}));
  kvm::ExecutionContext context(/*num_threads=*/2);
  kvm::SequenceState sequence = model->NewSequence();
  std::vector<float> logits(model->vocab_size());
  RETURN_IF_ERROR(model->Extend({{&sequence, tokens, {logits.data(), 1, model->vocab_size()}}}, context));
  kvm::SequenceState branch = sequence.Fork();  // a state cannot be rewound, but it can be copied
  return logits;
}
