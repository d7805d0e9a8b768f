// Models on disk, where a server is told to keep them (serve --store DIR): a file each, all/NAME.model of models that
// are everybody's and of-OWNER/NAME.model of a principal's. A file appears under its name whole, synced, or not at all;
// each is checked against the CRC-32s in it when it is read again. One server at a time has a folder.
//
// A file: "FLMODEL1", the bytes of the description and their CRC-32 (u32 each, little-endian), the description, zeros
// up to a multiple of 4096, then the tensors as they lie in Model::memory. The description is what a push says of a
// model (push_protocol.h): push_begin, files, tensors with the CRC-32 of each, each message after its length (u32).
//
// Threads: write() from any, all else from one. Errors: those of the system, naming the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cli/models/model_store.h"
#include "fairlead/status.h"

namespace fairlead::cli {

class ModelDisk {
 public:
  /// Makes the folder if it is not there, locks it, and removes what was left half written. Errors: also kAlreadyExists
  /// (another server has it).
  static Result<std::unique_ptr<ModelDisk>> open(const std::string& folder);

  /// A model that is written and synced, and has no name yet; goes with this object unless it is given one. Move-only.
  class Draft {
   public:
    Draft() noexcept = default;
    explicit Draft(std::filesystem::path path) : path_(std::move(path)) {}
    Draft(Draft&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    Draft& operator=(Draft&& other) noexcept {
      std::swap(path_, other.path_);
      return *this;
    }
    ~Draft();

   private:
    friend class ModelDisk;
    std::filesystem::path path_;
  };
  /// Takes long; `stop` is looked at between pieces. Errors: also kResourceExhausted (the disk is full), kCancelled.
  Result<Draft> write(const Model& model, const std::stop_token& stop = {});
  /// Gives it its name; what had that name is gone. When it returns the name is on the disk, too.
  Status name(Draft draft, const Model& model);
  /// Of a model that the server has dropped.
  Status remove(const Model& model);

  struct File {
    std::filesystem::path path;
    std::string owner, model;
    std::uint64_t bytes = 0;  // of the file
    std::filesystem::file_time_type written;
  };
  /// All that are there, the oldest first.
  [[nodiscard]] Result<std::vector<File>> files() const;
  /// Reads one into memory of the engine's and checks all of it; `stop` is asked between pieces. Errors: kDataLoss,
  /// which says what is damaged; others say nothing of the file: kCancelled, once `stop` says so.
  static Result<std::shared_ptr<Model>> read(const File& file, Engine& engine, const std::function<bool()>& stop = {});
  /// Has a damaged file stand beside, as NAME.model.damaged, where it is not read again; gives that name.
  Result<std::string> set_aside(const File& file);

 private:
  ModelDisk(std::filesystem::path folder, UniqueFd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}
  [[nodiscard]] std::filesystem::path folder_of(const std::string& owner) const;
  [[nodiscard]] std::filesystem::path path_of(const Model& model) const;

  std::filesystem::path folder_;
  UniqueFd lock_;
  std::atomic<std::uint64_t> drafts_{0};
};

}  // namespace fairlead::cli
