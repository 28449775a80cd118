"""What our code needs of a compiler to be right. Dependents do not inherit .bazelrc."""

# A product and a sum round twice unless a kernel asks for a fused multiply-add.
EXACT = ["-ffp-contract=off"]
