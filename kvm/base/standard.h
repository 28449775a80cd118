#ifndef KVM_BASE_STANDARD_H_
#define KVM_BASE_STANDARD_H_

// The language that all of kvm is written in. The headers at the bottom include this one, so that a compiler which was
// asked for less says what it lacks.

#if __cplusplus < 201703L
#error "kvm needs C++17. In .bazelrc: build --cxxopt=-std=c++17 --host_cxxopt=-std=c++17 (README.md of kvm)"
#endif

#endif  // KVM_BASE_STANDARD_H_
