// The user's handle on a connection. Destroying it, also from within a callback, lets the connection go.
#pragma once

#include "transport/path.h"
#include "verbs/transport/connection.h"
#include "verbs/transport/endpoint.h"

namespace fairlead::verbs {

class VerbsPath final : public datapath::Path {
 public:
  VerbsPath(VerbsEndpoint& endpoint, datapath::PathEvents& events) noexcept : Path(events), endpoint_(endpoint) {}
  ~VerbsPath() override {
    if (connection_ != nullptr) endpoint_.release(*connection_);
  }
  /// Once, before anything else.
  void attach(Connection& connection) noexcept { connection_ = &connection; }

  [[nodiscard]] std::string local_description() const override { return connection_->local_description(); }
  Status connect(std::string_view peer) override { return connection_->connect(peer); }
  std::size_t post(std::span<const datapath::WorkRequest> requests) noexcept override {
    return connection_->post(requests);
  }
  void close() noexcept override { connection_->close(); }
  [[nodiscard]] bool drained() const noexcept override { return connection_->drained(); }
  [[nodiscard]] std::uint32_t max_message() const noexcept override { return connection_->max_message(); }
  [[nodiscard]] std::string describe() const override { return connection_->describe(); }

 private:
  VerbsEndpoint& endpoint_;
  Connection* connection_ = nullptr;
};

}  // namespace fairlead::verbs
